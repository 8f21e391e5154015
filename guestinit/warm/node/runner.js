'use strict';
// Entry of the warm Node interpreter; see docs/warm.md.
//
// The agent starts `node -r runner.js context.js` before a template is saved,
// with its control socket as descriptor 3. A preloaded module runs before the
// main one and may take its time: this one warms up and waits. When a program
// comes, Node goes on to start its main module, and finds the program instead
// of context.js. So the program is started by Node itself, with the same
// frames below it as ever. When a cell comes, context.js is what runs.
//
//   start ─▶ warm up ─▶ ready ─▶ waiting ──generation──▶ renew, answer ─┐
//                                │  ▲ └──────────────────────────────┘
//                          run ──┤
//                                └── cell ──▶ context.js
//
// Worker threads preload what the main one did; there it only sets up the
// generators.

const { isMainThread } = require('node:worker_threads');
const Module = require('node:module');
const native = require('./native.node');
const generation = require('./generation.js').install(native);

function hide() {
  for (const name of Object.keys(require.cache)) {
    if (name.startsWith(__dirname + '/')) delete require.cache[name];
  }
}

if (!isMainThread) {
  // A worker has its parent's arguments, this file's among them.
  const at = process.execArgv.indexOf(__filename);
  if (at > 0) process.execArgv.splice(at - 1, 2);
  hide();
} else {
  const began = process.hrtime.bigint();
  const control = require('./control.js');
  const job = require('./job.js');
  const startup = job.startup();
  const missing = require('./warmup.js').run(process.argv.slice(2));
  // The first renewal is in the template: for it OpenSSL makes its generators.
  if (!generation.renew('00'.repeat(32))) throw new Error('OpenSSL cannot be seeded');
  if (!native.start(control.fd)) throw new Error('SIGURG cannot be handled');
  control.send({
    op: 'ready', runtime: 'node', version: process.versions.node, modules: process.moduleLoadList.length, missing, keeper: native.keep(),
    took_us: Number((process.hrtime.bigint() - began) / 1000n),
  });
  wait(control, job, startup);
}

function wait(control, job, startup) {
  for (;;) {
    const message = control.receive();
    if (message === null) process.reallyExit(0);
    // Nothing must run if the generators could not be renewed.
    if (message.seed !== undefined && !generation.renew(message.seed)) process.reallyExit(1);
    switch (message.op) {
      case 'generation':
        control.send({ op: 'generation', number: message.number });
        break;
      case 'run': {
        const answer = job.start(message, startup, control, hide);
        if (answer.errno === undefined) return;
        control.send(answer);
        break;
      }
      case 'cell':
        module.exports = { control, generation, first: message, hide };
        process.execArgv = [];
        process.argv.length = 2;
        return;
    }
  }
}
