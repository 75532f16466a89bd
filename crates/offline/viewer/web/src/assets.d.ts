// Style sheets are bundled by esbuild; there is nothing in them for TypeScript.
declare module "*.css";
