'use strict';
// Loads what jobs load and runs what they run first, then settles the heap.

const Module = require('node:module');
const v8 = require('node:v8');
const vm = require('node:vm');

// Not assert and http2: they open standard error as a stream, which a program can see.
const BUILTINS = [
  'async_hooks', 'buffer', 'child_process', 'crypto', 'dns', 'events', 'fs', 'fs/promises', 'http', 'https',
  'net', 'os', 'path', 'perf_hooks', 'querystring', 'readline', 'stream', 'stream/promises', 'string_decoder', 'timers',
  'timers/promises', 'tls', 'tty', 'url', 'util', 'v8', 'vm', 'worker_threads', 'zlib',
];

// run returns the names of extra packages that could not be loaded.
function run(extra) {
  for (const name of BUILTINS) require('node:' + name);
  const load = Module.createRequire('/');
  const missing = [];
  for (const name of extra) {
    try {
      load(name);
    } catch {
      missing.push(name);
    }
  }
  exercise();
  collect();
  return missing;
}

function exercise() {
  const fs = require('node:fs');
  const util = require('node:util');
  const path = require('node:path');
  JSON.parse(JSON.stringify({ a: [1, { b: 'c' }] }));
  util.inspect({ a: [1, new Map([[1, new Date(0)]])], f() {} });
  path.resolve('a/../b');
  fs.readFileSync('/etc/passwd', 'utf8').split('\n').map((l) => l.length).reduce((x, y) => x + y, 0);
  new vm.Script('const warm = (x) => [1, 2, 3].map((y) => x * y); warm(2);').runInNewContext({});
  require('node:crypto').createHash('sha256').update('warm').digest('hex');
  new URL('https://example.com/a?b=c').searchParams.get('b');
  // At the size of a small job: the heap grows here, and not in every machine, where
  // each page costs a fault.
  const rows = Array.from({ length: 5000 }, (_, i) => ({ key: i % 97, value: Math.sqrt(i) }));
  const sums = new Map();
  for (const { key, value } of rows) sums.set(key, (sums.get(key) ?? 0) + value);
  const sorted = [...sums].sort((a, b) => b[1] - a[1]).map(([key, sum]) => ({ key, sum: sum.toFixed(3) }));
  JSON.parse(JSON.stringify(sorted));
  Buffer.from(JSON.stringify(rows)).toString('base64').split('A').join('B');
}

// collect has V8 collect garbage, so that none is in the template.
function collect() {
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  v8.setFlagsFromString('--no-expose-gc');
  for (let i = 0; i < 3; i++) gc();
}

module.exports = { run };
