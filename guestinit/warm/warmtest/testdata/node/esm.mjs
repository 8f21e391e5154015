import fs, { readFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import lodash from 'lodash';
const { default: path } = await import('node:path');
console.log(import.meta.url, import.meta.dirname, import.meta.filename, typeof import.meta.resolve, fs.readFileSync === readFileSync, path.sep, lodash.chunk([1, 2, 3], 2), randomUUID().length);
console.log(typeof require, typeof module, this);
export const x = 1;
