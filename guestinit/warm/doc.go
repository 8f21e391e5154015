// Package warm holds the interpreters that wait for a job, and how the agent
// talks to them: the runner programs, embedded, the command lines that start
// them, and the frames of their control socket.
//
// A warm interpreter is an exec like any other (own user, cgroup, seccomp
// list), started before a template is saved. It has imported its libraries
// and waits on descriptor 3. When a job comes it becomes that job, or it runs
// one cell after another. What comes from it is as hostile as any job's
// output: see Conn. docs/warm.md has the whole story.
package warm

// The addon of the node runner is committed, so that nobody needs a C compiler
// to build the agent.
//
//go:generate gcc -shared -fPIC -O2 -Wall -Wextra -fvisibility=hidden -fno-asynchronous-unwind-tables -Wl,--build-id=none,--hash-style=gnu,-z,noseparate-code,-s -o node/native.node node/native.c keeper/keeper.c
//go:generate gcc -shared -fPIC -O2 -Wall -Wextra -fvisibility=hidden -fno-asynchronous-unwind-tables -Wl,--build-id=none,--hash-style=gnu,-z,noseparate-code,-s -o keeper/keeper.so keeper/keeper.c
