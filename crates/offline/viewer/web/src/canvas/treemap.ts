// Squarified treemap: rectangles whose areas are in proportion, each as near to a square as can be.

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** One rectangle per value, in order; values have to be sorted from largest to smallest and be positive. */
export function squarify(values: readonly number[], area: Rectangle): Rectangle[] {
  const total = values.reduce((sum, value) => sum + value, 0);
  const placed: Rectangle[] = [];
  let free = { ...area };
  let index = 0;
  let left = total;
  while (index < values.length && left > 0 && free.width > 0 && free.height > 0) {
    const scale = (free.width * free.height) / left;
    const side = Math.min(free.width, free.height);
    let end = index;
    let sum = 0;
    let worst = Infinity;
    while (end < values.length) {
      const grown = sum + values[end]!;
      const ratio = worstRatio(values[index]!, values[end]!, grown, scale, side);
      if (ratio > worst) break;
      worst = ratio;
      sum = grown;
      end += 1;
    }
    const thickness = (sum * scale) / side;
    let offset = 0;
    for (; index < end; index += 1) {
      const length = (values[index]! * scale) / thickness;
      placed.push(
        free.width >= free.height
          ? { x: free.x, y: free.y + offset, width: thickness, height: length }
          : { x: free.x + offset, y: free.y, width: length, height: thickness },
      );
      offset += length;
    }
    left -= sum;
    free =
      free.width >= free.height
        ? { x: free.x + thickness, y: free.y, width: free.width - thickness, height: free.height }
        : { x: free.x, y: free.y + thickness, width: free.width, height: free.height - thickness };
  }
  while (placed.length < values.length) placed.push({ x: free.x, y: free.y, width: 0, height: 0 });
  return placed;
}

/** The worst relation of sides in a row of values between `largest` and `smallest`. */
function worstRatio(largest: number, smallest: number, sum: number, scale: number, side: number): number {
  const area = sum * scale;
  const squared = side * side;
  return Math.max((squared * largest * scale) / (area * area), (area * area) / (squared * smallest * scale));
}
