// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// killDelay is how long a child may take to end by itself. What is killed before has not tidied
// up, such as given back its Lease, so a busy machine has its time.
const killDelay = time.Minute

// lastWords is how long the output of a child that has ended is read, which its own children may
// keep open.
const lastWords = 10 * time.Second

// process is a child in a process group of its own, which dies with us.
type process struct {
	name string
	pid  int
	done chan struct{} // closed when the child has been reaped
	err  error         // how it ended; read after done
}

// startProcess starts a child. It gets the cluster's folder as its home, so
// that it writes nowhere else, and a group of its own, so that a Ctrl-C in the
// terminal reaches only us and children end in our order.
//
// The kernel sends the parent-death signal when the *thread* that made the
// child ends (prctl(2), PR_SET_PDEATHSIG), so one goroutine holds on to its
// thread from fork to reap.
func startProcess(name, binary string, args []string, dir string, log io.Writer) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "KUBECONFIG=")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = lastWords
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &process{name: name, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// alive reports whether the child has not been reaped yet.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig to the child's group, if it still runs. A reaped child's
// number may already belong to somebody else.
func (p *process) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(-p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// kill ends the child at once and waits until it is gone.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return err
}

// stop asks the child to end, and kills it when it has not done so in time.
func (p *process) stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killDelay)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return p.kill()
	}
}
