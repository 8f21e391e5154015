require('./no-such-module');
