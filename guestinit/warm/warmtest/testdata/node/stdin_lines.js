let all = '';
process.stdin.on('data', (d) => { all += d; }).on('end', () => console.log(JSON.stringify(all), process.stdin.isTTY));
