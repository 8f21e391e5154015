import { randomUUID, randomInt, randomBytes, createHash, getRandomValues } from 'node:crypto';
console.log(/^[0-9a-f-]{36}$/.test(randomUUID()), randomInt(1), randomInt(5, 6), randomBytes(4).length, createHash('md5').update('x').digest('hex'));
console.log(crypto.randomUUID().length, crypto.getRandomValues(new Uint8Array(2)).length, Math.random() < 1, getRandomValues(new Uint8Array(1)).length);
randomInt(10, (e, n) => console.log(e, typeof n));
try { randomInt(1.5); } catch (e) { console.log(e.code); }
