process.emitWarning('careful', 'CustomWarning', 'C001');
process.emitWarning('old', 'DeprecationWarning', 'DEP9');
new Buffer(1);
