// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

const (
	// maxAsked bounds the size of a question in bytes.
	maxAsked = 4 << 20
	// answerTime bounds the time for an answer, its snapshot included.
	answerTime = 90 * time.Second
	// bodyTime and writeTime bound how long a client takes to send its question, and to read the response.
	bodyTime  = 10 * time.Second
	writeTime = time.Minute
	// turnTime is how long a request waits for the one before it. Refusing it at once would cost more: a
	// client that repeats its request without pause would then be refused all the time.
	turnTime = 2 * time.Second
	// maxBodies bounds how many requests, of maxAsked bytes each, are read or wait at once.
	maxBodies = 8
	// maxAnswer bounds the size of an answer: 16 KiB for each of whatif.MaxAsked pods.
	maxAnswer = 16 << 20
	// maxWords bounds how much of a failed child's error output is passed on.
	maxWords = 4 << 10
	// lowPriority is the child's nice value.
	lowPriority = 10
)

// Ask answers the question asked about pods in a separate process, from the snapshot that write writes.
type Ask func(ctx context.Context, write func(io.Writer) error, asked []byte) ([]byte, error)

// Child answers with this program in a process of its own, on one CPU: it has its own metrics, logs and
// memory, and pods are scheduled meanwhile.
func Child(ctx context.Context, write func(io.Writer) error, asked []byte) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's path: %w", err)
	}
	file, feed, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "what-if", "--snapshot=-", "--file=/dev/fd/3", "--output=json")
	cmd.Env = []string{"GOMAXPROCS=1"} // it needs none of this process's variables
	cmd.ExtraFiles = []*os.File{file}
	cmd.WaitDelay = time.Second
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{to: &out, left: maxAnswer + 1}, &limited{to: &words, left: maxWords}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a pipe: %w", err), feed.Close())
	}
	if err := startLow(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", self, err), feed.Close())
	}
	go func() {
		// A child that does not read it reports why itself.
		_, _ = feed.Write(asked)
		_ = feed.Close()
	}()
	written := errors.Join(write(in), in.Close())
	err = cmd.Wait()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil && out.Len() > maxAnswer:
		return nil, fmt.Errorf("%w: the answer has more than %d MiB, ask about fewer pods", whatif.ErrAsked, maxAnswer>>20)
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %s: %w", answerTime, ctx.Err())
	case ended && exit.ExitCode() == whatif.ExitAsked:
		return nil, fmt.Errorf("%w: %s", whatif.ErrAsked, strings.TrimSpace(words.String()))
	default:
		return nil, fmt.Errorf("%w: %s", errors.Join(err, written), strings.TrimSpace(words.String()))
	}
}

// startLow starts a process at a low priority, which on Linux it inherits from the thread that starts it.
func startLow(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if runtime.GOOS == "linux" {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowPriority) // a failure is ignored: the child has only one CPU anyway
		}
		started <- cmd.Start()
	}()
	return <-started
}

// limited passes on the first left bytes and discards the rest.
type limited struct {
	to   io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(l.left, len(p))
	l.left -= n
	if _, err := l.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// whatIf answers POST requests for whatif.Path and GET requests for whatif.SnapshotPath, one at a time.
type whatIf struct {
	write    func(io.Writer) error // of a snapshot
	ready    func() error          // why no request can be answered now
	ask      Ask
	bodyTime time.Duration // for a client to send its question
	turnTime time.Duration // for the previous request to be answered
	bodies   chan struct{} // has one entry for each request in memory
	turn     chan struct{} // has one entry while a request is answered
}

func newWhatIf(write func(io.Writer) error, ready func() error, ask Ask) *whatIf {
	return &whatIf{write: write, ready: ready, ask: ask, bodyTime: bodyTime, turnTime: turnTime, bodies: make(chan struct{}, maxBodies), turn: make(chan struct{}, 1)}
}

func (a *whatIf) register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+whatif.Path, a.serveAnswer)
	mux.HandleFunc("GET "+whatif.SnapshotPath, a.serveSnapshot)
}

// take puts an entry into a channel. If that is full, the request is refused.
func take(w http.ResponseWriter, entries chan struct{}) bool {
	select {
	case entries <- struct{}{}:
		return true
	default:
		refuse(w)
		return false
	}
}

// refuse responds that the request has to be sent again.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "another question or snapshot is being answered: ask again in 5 seconds", http.StatusTooManyRequests)
}

// await waits for the request's turn. If that takes too long, the request is refused.
func (a *whatIf) await(w http.ResponseWriter, r *http.Request) bool {
	timer := time.NewTimer(a.turnTime)
	defer timer.Stop()
	select {
	case a.turn <- struct{}{}:
		return true
	case <-r.Context().Done():
		return false // the client is gone
	case <-timer.C:
		refuse(w)
		return false
	}
}

func (a *whatIf) serveAnswer(w http.ResponseWriter, r *http.Request) {
	if !take(w, a.bodies) {
		return
	}
	defer func() { <-a.bodies }()
	asked, err := a.readBody(w, r)
	if err != nil {
		http.Error(w, fmt.Sprintf("reading what is asked for: %v", err), http.StatusBadRequest)
		return
	}
	answer, ok := a.answer(w, r, asked)
	if !ok {
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		http.Error(w, fmt.Sprintf("limiting the time for an answer: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the client may be gone
}

// readBody reads the question before the request's turn, so that a slow client does not delay others.
func (a *whatIf) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(a.bodyTime)); err != nil {
		return nil, err
	}
	asked, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAsked))
	if err != nil {
		return nil, err
	}
	return asked, connection.SetReadDeadline(time.Time{}) // later reads only detect that the client is gone
}

// answer has a question answered, in its turn. If that fails, it responds with the error.
func (a *whatIf) answer(w http.ResponseWriter, r *http.Request, asked []byte) (answer []byte, ok bool) {
	if !a.await(w, r) {
		return nil, false
	}
	defer func() { <-a.turn }()
	answer, code, err := a.inTurn(r.Context(), asked)
	if err != nil {
		http.Error(w, err.Error(), code)
	}
	return answer, err == nil
}

// inTurn returns an answer, or the status code for an error.
func (a *whatIf) inTurn(ctx context.Context, asked []byte) (answer []byte, code int, err error) {
	if err := a.ready(); err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	answer, err = a.ask(ctx, a.write, asked)
	switch {
	case errors.Is(err, whatif.ErrAsked):
		return nil, http.StatusBadRequest, err
	case err != nil:
		klog.FromContext(ctx).Error(err, "Answering what-if failed")
		return nil, http.StatusInternalServerError, err
	}
	return answer, http.StatusOK, nil
}

func (a *whatIf) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	if !take(w, a.bodies) {
		return
	}
	defer func() { <-a.bodies }()
	if !a.await(w, r) {
		return
	}
	defer func() { <-a.turn }()
	if err := a.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		http.Error(w, fmt.Sprintf("limiting the time for a snapshot: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if err := a.write(w); err != nil {
		klog.FromContext(r.Context()).Error(err, "Writing a snapshot failed") // the client misses its last line
	}
}
