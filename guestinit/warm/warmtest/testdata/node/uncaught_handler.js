process.on('uncaughtException', (e, origin) => { console.log('caught', e.message, origin); });
setTimeout(() => { throw new Error('late'); }, 5);
