// Loops while it is loaded.
// expect: timed_out
for (;;);
