console.log(Object.getOwnPropertyNames(globalThis).sort().join());
console.log(Object.keys(process).sort().join());
console.log(process.listenerCount('SIGINT'), process.eventNames(), process.title.length > 0, process._getActiveHandles().length, process._getActiveRequests().length);
console.log(Math.random.name, Math.random.length, Object.keys(require('module')).join(), Object.getOwnPropertyDescriptor(Math, 'random').enumerable);
console.log(require('v8').getHeapStatistics().heap_size_limit, process.features, process.release.name, process.allowedNodeEnvironmentFlags.size);
