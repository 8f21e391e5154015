console.log('before');
await Promise.resolve();
function thrower() { throw new RangeError('in a module'); }
thrower();
