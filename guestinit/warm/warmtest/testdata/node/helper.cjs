exports.name = 'helper'; exports.main = require.main === module; exports.parent = module.parent && module.parent.filename;
