// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// A kubelet goroutine serves each connection to a plugin: its first function, and the call in which it
// waits for the plugin's next list.
const (
	followsPlugin = "/devicemanager/plugin/v1beta1.(*server).connectClient.func1("
	waitsForList  = ").Recv("
)

// connections returns the number of plugins that kubelet is connected to, and how many of these
// connections are busy. A connection is busy while kubelet processes a list, until it has written its
// checkpoint, and while kubelet handles the connection's end. Kubelet exposes this only in the stacks of
// its goroutines.
func connections() (all, busy int) {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if !bytes.Contains(stack, []byte(followsPlugin)) {
			continue
		}
		all++
		if !bytes.Contains(stack, []byte(waitsForList)) {
			busy++
		}
	}
	return all, busy
}

// Patience is the limit of waits for steps of milliseconds: long enough for any machine.
const Patience = 2 * time.Minute

// WaitDisconnected waits until kubelet has handled the ends of all connections to plugins. Before that it
// mistakes a new connection of the same resource for the ended one: it closes the new one, or keeps it
// and takes its devices for unhealthy for good.
func (m *Manager) WaitDisconnected(tb testing.TB) {
	tb.Helper()
	testkit.Eventually(tb, Patience, "kubelet drops its connections to plugins", func(context.Context) (bool, string) {
		all, busy := connections()
		return all == 0, fmt.Sprintf("%d connections, %d of them busy", all, busy)
	})
}
