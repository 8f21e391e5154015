'use strict';
// New default random generators for each generation of the machine.
//
// Two forks of one checkpoint hold the same memory. The kernel's generator is
// made new by the agent; what this process keeps of its own is made new here:
//
//   Math.random        V8's state cannot be set once it was used, so there is
//                      a generator of our own in its place, in every thread
//   crypto.randomUUID  a cache of 128, drained
//   crypto.randomInt   a cache of 1024, drained
//   randomBytes, getRandomValues, TLS, …   OpenSSL's generator, reseeded
//
// The count of generations is in memory that the signal handler of native.c
// writes: whoever draws looks at it first, so that no number is drawn from the
// state of an earlier generation, whatever code is running.

const crypto = require('node:crypto');
const Module = require('node:module');

const UUIDS_CACHED = 128;
const INTS_CACHED = 1024;

function install(native) {
  const count = new Uint32Array(native.count);
  const { randomUUID, randomInt, randomFillSync } = crypto;
  const nativeRandom = Math.random;

  // sfc32 (Chris Doty-Humphrey's Small Fast Counting generator, PractRand):
  // 128 bits of state, a period of at least 2^32.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let seen = -1;
  const seed = new Uint32Array(4);

  function next() {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return t >>> 0;
  }

  function reseed() {
    seen = count[0];
    randomFillSync(seed);
    [a, b, c, d] = seed;
    for (let i = 0; i < 12; i++) next();
  }

  const wrappers = {
    random() {
      if (seen !== count[0]) reseed();
      return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
    },
  };
  replace(Math, 'random', wrappers.random, nativeRandom);

  let drained = count[0];
  function drain() {
    drained = count[0];
    native.reseed(Buffer.alloc(0));
    drained = count[0];
    for (let i = 0; i < UUIDS_CACHED; i++) randomUUID();
    for (let i = 0; i < INTS_CACHED; i++) randomInt(2);
  }

  replace(crypto, 'randomUUID', function(options) {
    if (drained !== count[0]) drain();
    return randomUUID(options);
  }, randomUUID);
  replace(crypto, 'randomInt', function(min, max, callback) {
    if (drained !== count[0]) drain();
    return randomInt(min, max, callback);
  }, randomInt);
  const prototype = Object.getPrototypeOf(globalThis.crypto);
  const webUUID = prototype.randomUUID;
  replace(prototype, 'randomUUID', function() {
    if (drained !== count[0]) drain();
    return webUUID.call(this);
  }, webUUID);
  Module.syncBuiltinESMExports();

  return {
    // renew takes the host's seed in, and reports whether OpenSSL is seeded.
    renew(hex) { return native.reseed(Buffer.from(hex ?? '', 'hex')); },
    // unused says that no cache has been filled yet: nothing to drain.
    unused() { drained = count[0]; },
  };
}

// replace puts f in the place of a function, looking like it.
function replace(object, name, f, original) {
  for (const property of ['name', 'length']) {
    Object.defineProperty(f, property, { value: original[property], configurable: true });
  }
  if (!Object.hasOwn(original, 'prototype')) delete f.prototype;
  Object.defineProperty(object, name, { ...Object.getOwnPropertyDescriptor(object, name), value: f });
}

module.exports = { install };
