const { Worker, isMainThread, parentPort, workerData, threadId } = require('worker_threads');
if (isMainThread) {
  const w = new Worker(__filename, { workerData: 5 });
  w.on('message', (m) => { console.log('main got', m); w.postMessage('go on'); }).on('exit', (c) => console.log('exit', c));
  w.on('error', (e) => console.log('error', e.message));
} else {
  parentPort.once('message', () => { throw new Error('worker fails'); });
  parentPort.postMessage([workerData * 2, threadId, typeof Math.random(), require.main === module, process.argv.length, process.execArgv]);
}
