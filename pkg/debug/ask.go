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

	"github.com/nvtopo/nvtopo/pkg/whatif"
)

const (
	// maxAsked bounds what is asked for.
	maxAsked = 4 << 20
	// answerTime bounds the time for an answer, its snapshot included.
	answerTime = 90 * time.Second
	// maxWords bounds what is passed on of a failed child's words.
	maxWords = 4 << 10
	// lowPriority is the child's nice value.
	lowPriority = 10
)

// Ask has a process answer what becomes of the pods in a file, by the snapshot that write writes.
type Ask func(ctx context.Context, write func(io.Writer) error, asked []byte) ([]byte, error)

// Child answers by this program in a process of its own, on one CPU: the metrics, logs and memory
// of this one have nothing to do with it, and pods are scheduled meanwhile.
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
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.ExtraFiles = []*os.File{file}
	cmd.WaitDelay = time.Second
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &limited{to: &words, left: maxWords}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a pipe: %w", err), feed.Close())
	}
	if err := startLow(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", self, err), feed.Close())
	}
	go func() {
		// A child that does not read it says why itself.
		_, _ = feed.Write(asked)
		_ = feed.Close()
	}()
	written := errors.Join(write(in), in.Close())
	err = cmd.Wait()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
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

// startLow starts a process at a low priority, which on Linux it inherits from the thread that starts
// it.
func startLow(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if runtime.GOOS == "linux" {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowPriority) // to be slower on its one CPU is a courtesy
		}
		started <- cmd.Start()
	}()
	return <-started
}

// limited passes on so many bytes and swallows the rest.
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

// whatIf answers POST requests for whatif.Path and GET requests for whatif.SnapshotPath, one at a
// time.
type whatIf struct {
	write func(io.Writer) error // of a snapshot
	ready func() error          // why nothing can be answered now
	ask   Ask
	turn  chan struct{} // has one entry while a request is answered
}

func (a *whatIf) register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+whatif.Path, a.one(a.serveAnswer))
	mux.HandleFunc("GET "+whatif.SnapshotPath, a.one(a.serveSnapshot))
}

// one refuses requests while another is answered.
func (a *whatIf) one(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case a.turn <- struct{}{}:
			defer func() { <-a.turn }()
		default:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "another question is being answered", http.StatusTooManyRequests)
			return
		}
		if err := a.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		next(w, r)
	}
}

func (a *whatIf) serveAnswer(w http.ResponseWriter, r *http.Request) {
	asked, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAsked))
	if err != nil {
		http.Error(w, fmt.Sprintf("reading what is asked for: %v", err), http.StatusBadRequest)
		return
	}
	answer, err := a.ask(r.Context(), a.write, asked)
	switch {
	case errors.Is(err, whatif.ErrAsked):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		klog.FromContext(r.Context()).Error(err, "Answering what-if failed")
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // the client may be gone
	}
}

func (a *whatIf) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	if err := a.write(w); err != nil {
		klog.FromContext(r.Context()).Error(err, "Writing a snapshot failed") // the client misses its last line
	}
}
