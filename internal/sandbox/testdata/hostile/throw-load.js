// Throws while it is loaded.
// expect: thrown Error
throw new Error('while loading');
