// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// jail is the owner's side of the node's first process.
type jail struct {
	pid  int           // of the first process, as the machine sees it
	done chan struct{} // closed when it, and so all of the node, is gone

	commands io.WriteCloser

	mu      sync.Mutex
	encoder *json.Encoder       // guarded by mu
	last    int                 // the newest command's ID, guarded by mu
	waiting map[int]chan event  // command ID -> its answer, guarded by mu
	exits   map[int]chan string // child's pid -> how it ended, guarded by mu
	early   map[int]string      // ends of children without an earlier call of exit, guarded by mu
}

// startJail starts the first process, which creates its mounts. Its output goes to log.
func startJail(what setup, log io.Writer) (_ *jail, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", errors.Join(err, inR.Close(), inW.Close()))
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{initName}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{inR, outW}
	namespaces := uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
	if len(what.Addresses) > 0 {
		namespaces |= syscall.CLONE_NEWNET
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	j := &jail{
		done: make(chan struct{}), commands: inW, encoder: json.NewEncoder(inW),
		waiting: map[int]chan event{}, exits: map[int]chan string{}, early: map[int]string{},
	}
	started := make(chan error, 1)
	// The parent-death signal comes when the thread ends that made the child
	// (prctl(2)), so one goroutine holds on to its thread.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			j.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is always killed
			close(j.done)
		}
	}()
	err = <-started
	err = errors.Join(err, inR.Close(), outW.Close())
	if err != nil {
		return nil, fmt.Errorf("start the node's first process: %w", errors.Join(err, inW.Close(), outR.Close()))
	}
	go j.receive(outR)
	if err := j.begin(what); err != nil {
		return nil, errors.Join(err, j.kill())
	}
	return j, nil
}

// receive hands out events until the first process is gone.
func (j *jail) receive(events io.ReadCloser) {
	defer func() { _ = events.Close() }() // only read
	dec := json.NewDecoder(events)
	for {
		var e event
		if dec.Decode(&e) != nil {
			return
		}
		j.mu.Lock()
		switch {
		case e.ID > 0:
			j.waiting[e.ID] <- e // has room for one
			delete(j.waiting, e.ID)
		case j.exits[e.PID] != nil:
			j.exits[e.PID] <- e.Exited // has room for one
			delete(j.exits, e.PID)
		default:
			j.early[e.PID] = e.Exited
		}
		j.mu.Unlock()
	}
}

// begin sends the setup, whose answer has the ID 1.
func (j *jail) begin(s setup) error {
	_, err := j.exchange(func(int) any { return s })
	return err
}

// ask sends a command and waits for the answer.
func (j *jail) ask(c command) (event, error) {
	return j.exchange(func(id int) any {
		c.ID = id
		return c
	})
}

func (j *jail) exchange(message func(id int) any) (event, error) {
	answer := make(chan event, 1)
	j.mu.Lock()
	j.last++
	j.waiting[j.last] = answer
	err := j.encoder.Encode(message(j.last))
	j.mu.Unlock()
	if err != nil {
		return event{}, fmt.Errorf("ask the node's first process: %w", err)
	}
	select {
	case e := <-answer:
		if e.Err != "" {
			return e, errors.New(e.Err)
		}
		return e, nil
	case <-j.done:
		return event{}, errors.New("the node's first process ended")
	}
}

// exit returns a channel that receives how the child ended.
func (j *jail) exit(pid int) <-chan string {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := make(chan string, 1)
	if how, over := j.early[pid]; over {
		delete(j.early, pid)
		c <- how
	} else {
		j.exits[pid] = c
	}
	return c
}

// kill ends every process of the node and waits until all are gone: the first
// process of a PID namespace is reaped after all others.
func (j *jail) kill() error {
	select {
	case <-j.done:
	default:
		if err := syscall.Kill(j.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill the node's first process: %w", err)
		}
		<-j.done
	}
	if err := j.commands.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close the pipe to the node's first process: %w", err)
	}
	return nil
}
