console.log('never');
function ( {
