'use strict';
// Makes this process start a program as `node main.js` would. What cannot be
// done here exactly as a fresh Node would do it is done by one: the process
// executes `node` anew, with the same arguments, environment and descriptors.

const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');

// Variables that act while Node starts.
const ACT_AT_START = /^(NODE_(?!PATH$|ENV$)|UV_|LC_|LD_|GLIBC_|MALLOC_|OPENSSL_|SSL_|ICU_|LANG$|LANGUAGE$)/;

function startup() {
  return { environ: actAtStart(process.env) };
}

function actAtStart(environ) {
  return JSON.stringify(Object.entries(environ).filter(([name]) => ACT_AT_START.test(name)).sort());
}

// start prepares the program, answers the agent, and returns the answer; then
// Node has only to go on. Does not return if a fresh Node is needed. An answer
// with an errno means that nothing was changed.
function start(message, before, control, hide) {
  try {
    process.chdir(message.cwd);
  } catch (e) {
    return { op: 'run', errno: -e.errno, number: message.number };
  }
  if (!message.stdin) {
    fs.closeSync(0);
    fs.openSync('/dev/null', 'r'); // the lowest free descriptor: 0
  }
  const argv = message.argv.map((s) => s.toWellFormed());
  const environ = environment(message.env);
  const program = message.cold ? { cold: message.cold } : find(argv, environ, before);
  if (program.cold) {
    control.send({ op: 'run', cold: program.cold.slice(0, 256), number: message.number });
    execute(argv, environ);
  }
  enter(argv, environ);
  redirect(program.path);
  hide();
  const answer = { op: 'run', number: message.number };
  control.send(answer);
  return answer;
}

function environment(entries) {
  const environ = {};
  for (const entry of entries) {
    const at = entry.indexOf('=');
    const name = entry.slice(0, at).toWellFormed();
    if (!Object.hasOwn(environ, name)) environ[name] = entry.slice(at + 1).toWellFormed();
  }
  return environ;
}

// find returns the path of the main module, or why a fresh Node is needed.
function find(argv, environ, before) {
  if (real(which(argv[0], environ)) !== real(process.execPath)) return { cold: 'another interpreter' };
  if (argv[0] !== process.argv0) return { cold: 'another name' }; // a property that cannot be changed
  if (actAtStart(environ) !== before.environ) return { cold: 'environment acts at start' };
  if (argv.length < 2) return { cold: 'no script' };
  if (argv[1].startsWith('-') || argv[1] === 'inspect') return { cold: 'option ' + argv[1] };
  let found;
  try {
    found = Module._findPath(path.resolve(argv[1]), null, true);
  } catch {
    found = false;
  }
  return found ? { path: found } : { cold: 'no such script' };
}

function which(name, environ) {
  if (name.includes('/')) return name;
  for (const directory of (environ.PATH ?? '').split(':')) {
    if (directory.startsWith('/') && fs.existsSync(path.join(directory, name))) return path.join(directory, name);
  }
  return '';
}

function real(name) {
  try {
    return fs.realpathSync(name);
  } catch {
    return null;
  }
}

function enter(argv, environ) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environ); // in the job's order, which programs can see
  Module._initPaths(); // of NODE_PATH
  process.argv = [process.execPath, path.resolve(argv[1]), ...argv.slice(2)];
  process.execArgv = [];
}

// redirect has Node find the program when it looks for its main module: once
// to choose a loader, and once more if that is CommonJS.
function redirect(program) {
  const placeholder = path.join(__dirname, 'context.js');
  const original = Module._findPath;
  let looked = 0;
  Module._findPath = function(request, paths, isMain) {
    if (!isMain || request !== placeholder) return original.call(this, request, paths, isMain);
    if (++looked === 2) Module._findPath = original;
    else queueMicrotask(() => { Module._findPath = original; });
    return program;
  };
}

function execute(argv, environ) {
  process.execve(which(argv[0], environ) || process.execPath, argv, environ);
}

module.exports = { startup, start };
