// Changes what all objects have.
// expect: value * | bad_result | thrown *
Object.prototype.toJSON = () => 'polluted';
Object.prototype.then = undefined;
Object.prototype.length = 7;
Object.prototype.code = 'EPERM';
module.exports = () => ({ a: 1 });
