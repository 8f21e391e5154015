const n: number = 3;
console.log(n satisfies number);
