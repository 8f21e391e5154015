'use strict';
// Runs cells in the global scope, as the console of a browser does: V8's REPL
// mode lets a later cell declare a `let` again, and await at the top level.

const { createHook } = require('node:async_hooks');
const inspector = require('node:inspector');
const { createRequire } = require('node:module');
const path = require('node:path');
const util = require('node:util');
const { promiseHooks } = require('node:v8');
const vm = require('node:vm');
const { imports } = require('./imports.js');

// What one answer may carry of a result and an exception's message, in
// characters; the rest is cut.
const MAX_RESULT = 32 << 10;
const MAX_MESSAGE = 4 << 10;

const hand = Symbol('thaw');
// Only a script that vm runs can be stopped by SIGINT while it computes.
const stoppable = new vm.Script('globalThis[Symbol.for("thaw.cell")]()', { filename: 'thaw:cell' });

class Interrupted extends Error {}

// Pending keeps the promises alive that a cell waits for. The inspector takes
// the collection of one that can never settle for an answer, and calls into
// JavaScript in the middle of it, which ends the process.
class Pending {
  #held = new Map();
  #hook = createHook({
    init: (id, type, trigger, resource) => { if (type === 'PROMISE') this.#held.set(id, resource); },
    promiseResolve: (id) => { this.#held.delete(id); },
  });

  start() { this.#hook.enable(); }

  stop() {
    this.#hook.disable();
    this.#held.clear();
  }
}

class Context {
  #control;
  #session;
  #interrupt = null;
  // The promise that the running cell is. The inspector answers some microtasks after it
  // has settled, when nobody else holds it: its collection would be taken for an answer
  // too (see Pending).
  #cell = null;
  #pending = new Pending();

  constructor(control) {
    this.#control = control;
    this.#connect();
    const require = createRequire(path.join(process.cwd(), 'cell.js'));
    Object.defineProperty(globalThis, 'require', { value: require, writable: true, configurable: true, enumerable: false });
    process.on('SIGINT', () => this.#interrupt?.(new Interrupted()));
    for (const event of ['uncaughtException', 'unhandledRejection']) {
      process.on(event, (error) => report(error));
    }
  }

  #connect() {
    this.#session?.disconnect();
    this.#session = new inspector.Session();
    this.#session.connect();
  }

  // run runs one cell, answers, and never fails.
  async run({ id, source, number }) {
    const answer = { op: 'cell', id, status: 'ok', number };
    try {
      const value = await this.#evaluate(id, source);
      if (value !== undefined) {
        const text = this.#stoppable(() => util.inspect(value));
        answer.result = text.slice(0, MAX_RESULT).toWellFormed();
        answer.cut = text.length > MAX_RESULT;
      }
    } catch (error) {
      answer.status = 'error';
      if (error instanceof Interrupted || error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
        answer.status = 'interrupted';
      } else {
        report(error);
      }
      try {
        answer.type = String(error?.constructor?.name ?? typeof error).slice(0, 256).toWellFormed();
        answer.message = String(error?.message ?? error).slice(0, MAX_MESSAGE).toWellFormed();
      } catch {
        answer.message = '';
      }
    }
    await flushed();
    this.#control.send(answer);
  }

  async #evaluate(id, source) {
    const interrupted = new Promise((_, reject) => { this.#interrupt = reject; });
    interrupted.catch(() => {});
    const waits = /\bawait\b/.test(source);
    try {
      if (waits) this.#pending.start();
      const reply = await Promise.race([interrupted, new Promise((resolve, reject) => {
        const expression = `${imports(source)}\n//# sourceURL=cell-${id}`;
        // V8 makes it before the cell's code runs.
        const stop = promiseHooks.onInit((promise) => { this.#cell ??= promise; });
        try {
          this.#stoppable(() => this.#session.post('Runtime.evaluate', {
            expression, replMode: true, awaitPromise: true, includeCommandLineAPI: false,
          }, (error, reply) => (error ? reject(new Interrupted()) : resolve(reply))));
        } finally {
          stop();
        }
      })]);
      if (reply.exceptionDetails) throw this.#take(reply.exceptionDetails.exception);
      return this.#take(reply.result);
    } catch (error) {
      // What the session still waits for is nobody's any more.
      if (error instanceof Interrupted) this.#connect();
      throw error;
    } finally {
      this.#interrupt = this.#cell = null;
      if (waits) this.#pending.stop();
    }
  }

  #stoppable(f) {
    globalThis[Symbol.for('thaw.cell')] = f;
    try {
      return stoppable.runInThisContext({ breakOnSigint: true, displayErrors: false });
    } finally {
      delete globalThis[Symbol.for('thaw.cell')];
    }
  }

  // take returns the value that the inspector has a handle of.
  #take(remote) {
    if (remote.objectId === undefined) {
      if (remote.unserializableValue !== undefined) return primitive(remote.unserializableValue);
      return remote.subtype === 'null' ? null : remote.value;
    }
    Object.defineProperty(globalThis, hand, { value: null, writable: true, configurable: true, enumerable: false });
    const key = Symbol.for('thaw.take');
    globalThis[key] = (value) => { globalThis[hand] = value; };
    try {
      this.#session.post('Runtime.callFunctionOn', {
        objectId: remote.objectId, functionDeclaration: 'function(v) { globalThis[Symbol.for("thaw.take")](v); }',
        arguments: [{ objectId: remote.objectId }],
      });
      return globalThis[hand];
    } finally {
      delete globalThis[key];
      delete globalThis[hand];
      this.#session.post('Runtime.releaseObject', { objectId: remote.objectId });
    }
  }
}

// primitive turns what JSON cannot hold: -0, NaN, Infinity, 12n.
function primitive(text) {
  return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
}

// report writes an error as a console does, without the frames below the cell.
function report(error) {
  try {
    const text = util.inspect(error).replace(/\n    at Session\.post \(node:inspector:[^]*?(?=\n(?!    at )|$)/, '');
    process.stderr.write(`Uncaught ${text}\n`);
  } catch {
    process.stderr.write('Uncaught exception that cannot be shown\n');
  }
}

// flushed waits until what was written to the pipes is in them.
function flushed() {
  return Promise.all([process.stdout, process.stderr].map((stream) => new Promise((resolve) => {
    if (stream.writableEnded || stream.destroyed) resolve();
    else stream.write('', () => resolve());
  })));
}

module.exports = { Context };
