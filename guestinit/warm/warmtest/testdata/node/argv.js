console.log(process.argv, process.argv0, process.execPath, process.execArgv, process.cwd(), __filename, __dirname);
console.log(require.main === module, module.id, module.parent, module.paths, module.children, Object.keys(require.cache), process.mainModule === module);
console.log(arguments.length, this === module.exports, typeof require.extensions);
