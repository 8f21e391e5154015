function f() { throw new TypeError('thrown'); }
f();
