/* Functions without any unwind table but with frame pointers, between functions that have them.
   The unit is built without tables; the callback and main are not. */
void untabled(void (*callback)(void), int depth) {
    if (depth == 0) callback();
    else untabled(callback, depth - 1);
    __asm__ volatile("");
}
