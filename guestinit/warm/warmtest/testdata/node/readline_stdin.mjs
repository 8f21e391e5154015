import readline from 'node:readline';
for await (const line of readline.createInterface({ input: process.stdin })) console.log('line', line);
