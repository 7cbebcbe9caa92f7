// Package check runs named checks, one after the other, and reports each on a line of its own.
package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"
)

// No check may take longer, however slow the machine. The real garbage collector looks for new kinds only twice a minute.
const limit = 80 * time.Second

const pollInterval = 50 * time.Millisecond

// T is one check that runs.
type T struct {
	ctx     context.Context
	failure string
}

// Suite counts the checks of a program.
type Suite struct {
	passed, failed int
}

// Run runs one check. It has failed if it called Failf, directly or through one of the methods below, or panicked.
func (s *Suite) Run(name string, check func(*T)) {
	if failure := attempt(check); failure != "" {
		s.failed++
		fmt.Printf("FAILED %s: %s\n", name, failure)
		return
	}
	s.passed++
	fmt.Printf("ok %s\n", name)
}

// attempt says why it did not come to a good end.
func attempt(check func(*T)) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	t := &T{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if cause := recover(); cause != nil {
				t.failure = fmt.Sprintf("panic: %v", cause)
			}
		}()
		check(t)
	}()
	<-done
	return t.failure
}

// Exit prints the counts and ends the program.
func (s *Suite) Exit() {
	fmt.Printf("%d passed, %d failed\n", s.passed, s.failed)
	if s.failed > 0 || s.passed == 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

// Context ends when the check has taken too long.
func (t *T) Context() context.Context { return t.ctx }

// Failf ends the check. It must be called from the check's own goroutine.
func (t *T) Failf(format string, args ...any) {
	t.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Must ends the check if `err` is not nil.
func (t *T) Must(err error, doing string, args ...any) {
	if err != nil {
		t.Failf("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// Want ends the check if `ok` is false.
func (t *T) Want(ok bool, wanted string, args ...any) {
	if !ok {
		t.Failf("wanted "+wanted, args...)
	}
}

// Refused ends the check if `err` is not one that `is` knows.
func (t *T) Refused(err error, is func(error) bool, doing string, args ...any) {
	if err == nil {
		t.Failf("%s: was not refused", fmt.Sprintf(doing, args...))
	}
	if !is(err) {
		t.Failf("%s: refused with another error: %v", fmt.Sprintf(doing, args...), err)
	}
}

// Eventually asks until the answer is nil; an error says what is still missing.
func (t *T) Eventually(what string, missing func() error) {
	var last error
	for {
		if last = missing(); last == nil {
			return
		}
		select {
		case <-t.ctx.Done():
			t.Failf("%s: %v", what, last)
		case <-time.After(pollInterval):
		}
	}
}

// Receive takes the next value, or ends the check when it has waited too long.
func Receive[V any](t *T, from <-chan V, what string) V {
	select {
	case value, open := <-from:
		if !open {
			t.Failf("waiting for %s: closed", what)
		}
		return value
	case <-t.ctx.Done():
		t.Failf("waiting for %s: nothing came", what)
	}
	panic("unreachable")
}

// Unique makes a name that no earlier run has used, whose namespace may still be going away.
func Unique(prefix string) string {
	return fmt.Sprintf("%s-%06x", prefix, rand.IntN(1<<24))
}

// Kubeconfig is the server to test.
func Kubeconfig() string {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		fmt.Fprintln(os.Stderr, "KUBECONFIG names no server")
		os.Exit(2)
	}
	return path
}
