Error.stackTraceLimit = 50;
console.log(new Error('here').stack);
console.trace('trace');
setImmediate(() => console.log(new Error('later').stack));
