// Runs in every shell of a Node template before a job does, and is rolled back: what
// it touches, a job finds touched. No module is needed, and none is declared twice.
{
  const rows = Array.from({ length: 2000 }, (_, i) => ({ key: i % 97, value: Math.sqrt(i) }));
  const sums = new Map();
  for (const { key, value } of rows) sums.set(key, (sums.get(key) ?? 0) + value);
  const sorted = [...sums].sort((a, b) => b[1] - a[1]).map(([key, sum]) => ({ key, sum: sum.toFixed(3) }));
  console.log(JSON.stringify(sorted.slice(0, 5)));
  console.log(Buffer.from(JSON.stringify(sorted)).toString('base64').length);
  console.error('done');
}
