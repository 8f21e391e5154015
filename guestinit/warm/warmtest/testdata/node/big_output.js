for (let i = 0; i < 20000; i++) console.log('line', i, 'x'.repeat(20));
process.exit(0);
