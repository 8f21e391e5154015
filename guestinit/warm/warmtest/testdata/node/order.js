setTimeout(() => console.log('timeout'), 0);
setImmediate(() => console.log('immediate'));
process.nextTick(() => console.log('tick'));
Promise.resolve().then(() => console.log('micro'));
queueMicrotask(() => console.log('micro 2'));
console.log('sync');
process.on('exit', () => console.log('exit'));
