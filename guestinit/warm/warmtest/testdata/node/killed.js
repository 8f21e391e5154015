console.log('flushed');
process.kill(process.pid, 'SIGKILL');
setInterval(() => {}, 1000);
