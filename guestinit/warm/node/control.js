'use strict';
// Frames of the control socket: u32 little-endian length, then JSON. Reading
// blocks the thread, and the event loop knows nothing of it.

const fs = require('node:fs');

const FD = 3;
const MAX_FRAME = 8 << 20;

function exactly(length) {
  const buffer = Buffer.allocUnsafeSlow(length);
  for (let at = 0; at < length;) {
    const n = fs.readSync(FD, buffer, at, length - at, null);
    if (n === 0) return null;
    at += n;
  }
  return buffer;
}

// receive returns the next message, or null when the agent is gone.
function receive() {
  const header = exactly(4);
  if (header === null) return null;
  const length = header.readUInt32LE(0);
  const body = length > MAX_FRAME ? null : exactly(length);
  return body === null ? null : JSON.parse(body.toString('utf8'));
}

function frame(message) {
  const body = Buffer.from(JSON.stringify(message), 'utf8');
  const header = Buffer.allocUnsafe(4);
  header.writeUInt32LE(body.length, 0);
  return Buffer.concat([header, body]);
}

function send(message) {
  const bytes = frame(message);
  for (let at = 0; at < bytes.length;) at += fs.writeSync(FD, bytes, at);
}

module.exports = { fd: FD, receive, send, frame, MAX_FRAME };
