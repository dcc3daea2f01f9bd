// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// MaxSocketPath is the longest path of a Socket. Linux's sun_path has 108 bytes including the final zero,
// and the aliases of a Socket are longer than its path.
const MaxSocketPath = 107 - len(aliasMark) - aliasDigits

const (
	temporarySuffix = "~"
	// An alias is the path with aliasMark and up to aliasDigits digits of base 36 before the extension:
	// milliseconds since 1970 have 8 until the year 2059. No resource name contains the mark.
	aliasMark   = "~"
	aliasDigits = 9
)

// FileID distinguishes successive socket files at the same path. File systems reuse inode numbers at
// once, so it includes the modification time.
type FileID struct {
	info fs.FileInfo
}

// IdentifySocket returns the identity of the file at path, or false if there is none.
func IdentifySocket(path string) (FileID, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return FileID{}, false
	}
	return FileID{info: info}, true
}

// Equal reports whether both identities are of the same file.
func (f FileID) Equal(other FileID) bool {
	if f.info == nil || other.info == nil {
		return f.info == nil && other.info == nil
	}
	return os.SameFile(f.info, other.info) && f.info.ModTime().Equal(other.info.ModTime())
}

// Socket serves a gRPC server at a path. If the file was removed, it can bind the path again without
// disturbing open connections.
type Socket struct {
	path   string
	server *grpc.Server

	mu       sync.Mutex
	listener *net.UnixListener // guarded by mu
	id       FileID            // guarded by mu
	serving  sync.WaitGroup
}

// NewSocket returns an unbound socket for the server; Bind binds it.
func NewSocket(path string, server *grpc.Server) (*Socket, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("socket %q: the path is not absolute", path)
	}
	if len(path) > MaxSocketPath {
		return nil, fmt.Errorf("socket %q: the path is longer than %d bytes", path, MaxSocketPath)
	}
	return &Socket{path: path, server: server}, nil
}

// Path returns the socket's path.
func (s *Socket) Path() string { return s.path }

// SocketState is the state of a socket's path.
type SocketState int

// States of a socket's path.
const (
	// Unbound paths must be bound: Bind has not been called yet, the file is gone, or it is another file
	// that no process serves.
	Unbound SocketState = iota
	// Bound paths lead to this socket.
	Bound
	// Taken paths lead to another process, which keeps the path: otherwise two processes would take it from
	// each other forever.
	Taken
)

// State returns the state of the path.
func (s *Socket) State() SocketState {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, exists := IdentifySocket(s.path)
	switch {
	case s.listener == nil || !exists:
		return Unbound
	case id.Equal(s.id):
		return Bound
	case served(s.path):
		return Taken
	}
	return Unbound
}

// served reports whether a process listens at path.
func served(path string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).Dial("unix", path)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// Bind puts a new socket at the path and serves it. It listens under a temporary name
// and then renames the file: a client that sees the file can connect at once, and a
// stale file of an earlier process is replaced, not removed first. Watchers of the
// directory see a new file. Open connections stay.
func (s *Socket) Bind() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	temporary := s.path + temporarySuffix
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing stale socket %q: %w", temporary, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listening for %q: %w", s.path, err)
	}
	// Go would unlink by name, and the file may belong to another process by then.
	listener.SetUnlinkOnClose(false)
	if err := os.Rename(temporary, s.path); err != nil {
		return errors.Join(fmt.Errorf("placing socket %q: %w", s.path, err), listener.Close(), os.Remove(temporary))
	}
	id, _ := IdentifySocket(s.path)
	old := s.listener
	s.listener, s.id = listener, id
	s.serving.Go(func() {
		// Returns when the listener is closed or the server stopped, and both are
		// intended.
		_ = s.server.Serve(listener)
	})
	if old != nil {
		_ = old.Close() // no client can reach this listener any more
	}
	return nil
}

// Alias links the bound socket under one more name in its folder, made from number, and returns that
// name.
func (s *Socket) Alias(number int64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stem, extension := s.stem()
	name := stem + aliasMark + strconv.FormatInt(number, 36) + extension
	if err := os.Link(s.path, filepath.Join(filepath.Dir(s.path), name)); err != nil {
		return "", fmt.Errorf("naming socket %q once more: %w", s.path, err)
	}
	return name, nil
}

// RemoveAliases removes all aliases of the path except one, including those of earlier processes. Open
// connections stay.
func (s *Socket) RemoveAliases(except string) {
	dir := filepath.Dir(s.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the next call removes them
	}
	stem, extension := s.stem()
	for _, e := range entries {
		number, found := strings.CutPrefix(e.Name(), stem+aliasMark)
		number, ends := strings.CutSuffix(number, extension)
		if found && ends && number != "" && len(number) <= aliasDigits && e.Name() != except && e.Type() == fs.ModeSocket {
			_ = os.Remove(filepath.Join(dir, e.Name())) // likewise
		}
	}
}

// stem returns the file's name without its extension, and the extension.
func (s *Socket) stem() (stem, extension string) {
	extension = filepath.Ext(s.path)
	return strings.TrimSuffix(filepath.Base(s.path), extension), extension
}

// Close stops the server, and removes the file and its aliases if it is still this socket's.
func (s *Socket) Close() {
	if s.State() == Bound {
		s.RemoveAliases("")
		_ = os.Remove(s.path) // the next Bind replaces a file left behind
	}
	s.server.Stop()
	s.serving.Wait()
}

// Dial returns a client connection to a socket. It connects on first use.
func Dial(path string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+filepath.Base(path),
		// As kubelet does: some servers refuse a path as authority.
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("dialling %q: %w", path, err)
	}
	return conn, nil
}

// Register registers a resource with the Registration service at kubeletSocket. Kubelet
// connects back to the endpoint before it answers.
func Register(ctx context.Context, kubeletSocket string, req *pluginapi.RegisterRequest, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := Dial(kubeletSocket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // only the answer matters
	if _, err := pluginapi.NewRegistrationClient(conn).Register(ctx, req); err != nil {
		return fmt.Errorf("registering %q at %q: %w", req.GetResourceName(), kubeletSocket, err)
	}
	return nil
}
