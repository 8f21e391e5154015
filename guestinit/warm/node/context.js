'use strict';
// The main module of an interpreter whose first message is a cell: serves
// cells while the event loop turns, so that what a cell started goes on.

const net = require('node:net');
const { control, generation, first, hide } = require('./runner.js');
const { Context } = require('./cell.js');

hide();
// Idle, an interrupt means nothing; while a cell runs Context handles it.
process.on('SIGINT', () => {});

const context = new Context(control);
let working = context.run(first);
const socket = new net.Socket({ fd: control.fd, readable: true, writable: false });
let pending = Buffer.alloc(0);

socket.on('data', (bytes) => {
  pending = Buffer.concat([pending, bytes]);
  while (pending.length >= 4) {
    const length = pending.readUInt32LE(0);
    if (length > control.MAX_FRAME) process.reallyExit(0);
    if (pending.length < 4 + length) return;
    const message = JSON.parse(pending.toString('utf8', 4, 4 + length));
    pending = pending.subarray(4 + length);
    if (message.seed !== undefined && !generation.renew(message.seed)) process.reallyExit(1);
    if (message.op === 'generation') {
      control.send({ op: 'generation', number: message.number });
    } else if (message.op === 'cell') {
      working = working.then(() => context.run(message));
    }
  }
});
socket.on('close', () => process.reallyExit(0));
