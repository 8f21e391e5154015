const { fork } = require('child_process');
if (process.argv[2] === 'child') {
  process.send([process.argv.length, process.execArgv, require.main === module]);
  process.exitCode = 4;
  process.disconnect();
} else {
  const c = fork(__filename, ['child']);
  c.on('message', (m) => console.log('parent got', m)).on('exit', (code) => console.log('exit', code));
}
