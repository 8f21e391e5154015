process.on('SIGTERM', () => { console.log('got SIGTERM'); clearInterval(t); });
const t = setInterval(() => {}, 1000);
process.kill(process.pid, 'SIGTERM');
