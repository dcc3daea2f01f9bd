// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// initName is argument zero of the node's first process.
const initName = "nvtopo-realnode-init"

// File descriptors of the first process, in the order of exec.Cmd.ExtraFiles.
const (
	commandsFD = 3
	eventsFD   = 4
)

// Operations of a command.
const (
	opStart  = "start"
	opSignal = "signal"
)

// command is a request to the first process; its response is an event with the same ID.
type command struct {
	ID   int
	Op   string
	Name string // which child

	// For opStart.
	Path      string
	Args, Env []string
	Dir       string
	Log       string // appended to; a path inside the node

	Signal syscall.Signal // for opSignal
}

// event is the response to a command (ID > 0) or the end of a child.
type event struct {
	ID     int
	Err    string
	PID    int    // as the node sees it
	Exited string // how the child ended, when it did
}

// setup holds the mounts and addresses that the first process creates before it takes commands.
type setup struct {
	Dir       string            // the node's own folder, a tmpfs is mounted on it
	Binds     map[string]string // path -> the folder that is seen there
	Addresses []string          // of the loopback device, if the node has a network of its own
}

// Init runs the node's first process if this program was started as one, and
// then does not return. Programs that use Start call it before anything else.
func Init() {
	if len(os.Args) == 0 || os.Args[0] != initName {
		return
	}
	if err := runInit(os.NewFile(commandsFD, "commands"), os.NewFile(eventsFD, "events")); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "node:", err) // no other process to report to
		os.Exit(1)
	}
	os.Exit(0)
}

// runInit serves commands until their sender is gone.
func runInit(commands io.Reader, events io.Writer) error {
	// The descriptors are not for the children.
	syscall.CloseOnExec(commandsFD)
	syscall.CloseOnExec(eventsFD)
	s := &supervisor{events: json.NewEncoder(events), children: map[int]string{}, pids: map[string]int{}}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, syscall.SIGCHLD)
	// A Ctrl-C in the terminal is for the program that runs the node.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)

	dec := json.NewDecoder(commands)
	var what setup
	if err := dec.Decode(&what); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	err := prepareMounts(what)
	if err == nil && len(what.Addresses) > 0 {
		err = prepareNetwork(what.Addresses)
	}
	s.send(event{ID: 1, Err: errorText(err)})
	if err != nil {
		return err
	}
	go func() {
		for range chld {
			s.reap()
		}
	}()
	for {
		var c command
		if err := dec.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read a command: %w", err)
		}
		pid, err := s.do(&c)
		s.send(event{ID: c.ID, PID: pid, Err: errorText(err)})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// supervisor is the first process's record of its children.
type supervisor struct {
	sending sync.Mutex
	events  *json.Encoder // guarded by sending

	// mu also covers a child's birth, so that reap never meets one that it
	// does not know yet.
	mu       sync.Mutex
	children map[int]string // pid -> name, guarded by mu
	pids     map[string]int // name -> pid, guarded by mu
}

// send sends an event to the node's owner; if that is gone, this process ends soon.
func (s *supervisor) send(e event) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.events.Encode(e)
}

func (s *supervisor) do(c *command) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, runs := s.pids[c.Name]
	switch c.Op {
	case opStart:
		if runs {
			return 0, errors.New("it is running")
		}
		return s.start(c)
	case opSignal:
		if !runs {
			return 0, nil
		}
		return pid, syscall.Kill(pid, c.Signal) // the owner names the child
	}
	return 0, fmt.Errorf("unknown operation %q", c.Op)
}

// start starts a child. The caller holds mu.
func (s *supervisor) start(c *command) (int, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open its log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("open its input: %w", err)
	}
	defer func() { _ = null.Close() }() // likewise
	pid, err := syscall.ForkExec(c.Path, append([]string{c.Path}, c.Args...), &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", c.Path, err)
	}
	s.children[pid], s.pids[c.Name] = c.Name, pid
	return pid, nil
}

// reap collects every child that ended, the orphans of others included.
func (s *supervisor) reap() {
	for {
		var status syscall.WaitStatus
		s.mu.Lock()
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		name, ours := s.children[pid]
		if ours {
			delete(s.children, pid)
			delete(s.pids, name)
		}
		s.mu.Unlock()
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return
		case ours:
			s.send(event{PID: pid, Exited: describeExit(status)})
		}
	}
}

func describeExit(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "ended by " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
