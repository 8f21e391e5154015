'use strict';
// Dynamic import in cells. What the inspector evaluates has no loader to
// import with (ERR_VM_DYNAMIC_IMPORT_CALLBACK_MISSING), so `import(` in a
// cell's source becomes a call of a function that has one.

const path = require('node:path');
const { pathToFileURL } = require('node:url');

const NAME = 'thaw.import';

// Relative names are meant from where the context works, not from here.
function resolve(specifier) {
  const name = String(specifier);
  return /^\.{0,2}\//.test(name) ? pathToFileURL(path.resolve(name)).href : name;
}

Object.defineProperty(globalThis, Symbol.for(NAME), {
  value: async (specifier, options) => import(resolve(specifier), options),
});

// Strings and comments, or the keyword with its bracket. Template literals are
// left alone as a whole; so is a regular expression with a quote in it, up to
// the next one. An import there fails as it did before.
const TOKENS = /'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"|`(?:[^`\\]|\\[^])*`|\/\/[^\n]*|\/\*[^]*?\*\/|(?<![.\w$#])import(?=\s*\()/g;

function imports(source) {
  if (!source.includes('import')) return source;
  return source.replace(TOKENS, (token) => (token === 'import' ? `globalThis[Symbol.for('${NAME}')]` : token));
}

module.exports = { imports };
