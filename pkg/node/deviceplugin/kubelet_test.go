// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletserver "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// manager is the part of kubelet's device manager behind its registration
// server: like it, it marks a resource stopped when the server says that the
// plugin is gone.
type manager struct {
	mu        sync.Mutex
	plugin    kubeletserver.DevicePlugin // nil while gone; guarded by mu
	devices   int                        // guarded by mu
	connected int                        // registrations; guarded by mu
}

func (m *manager) CleanupPluginDirectory(_ klog.Logger, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return err
}

func (m *manager) PluginConnected(ctx context.Context, _ string, p kubeletserver.DevicePlugin) error {
	if _, err := p.API().GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plugin, m.devices = p, 0
	m.connected++
	return nil
}

func (m *manager) PluginDisconnected(klog.Logger, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plugin, m.devices = nil, 0
}

func (m *manager) PluginListAndWatchReceiver(_ klog.Logger, _ string, r *pluginapi.ListAndWatchResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices = len(r.GetDevices())
}

func (m *manager) get() (p kubeletserver.DevicePlugin, devices, connected int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plugin, m.devices, m.connected
}

func (m *manager) alive(devices int) func() bool {
	return func() bool { p, n, _ := m.get(); return p != nil && n == devices }
}

// TestKubeletServer runs the plugin against the registration server of kubelet itself.
func TestKubeletServer(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	d := dir(t)
	m := &manager{}
	start := func() kubeletserver.Server {
		s, err := kubeletserver.NewServer(logger, filepath.Join(d, "kubelet.sock"), m, m)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(logger); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start()
	stop := func() {
		if err := s.Stop(logger); err != nil {
			t.Error(err)
		}
	}
	defer func() { stop() }()
	p := newPlugin(t, deviceplugin.Config{PluginDir: d})
	run(t, p)
	testkit.Soon(t, "registered", m.alive(3))

	for range 3 {
		stop()
		testkit.Soon(t, "the plugin notices", func() bool { return !p.Registered() })
		s = start()
		testkit.Soon(t, "registered with the next server", m.alive(3))
	}
	for range 3 { // the connection alone breaks
		client, _, before := m.get()
		if err := client.(kubeletserver.Client).Disconnect(logger); err != nil {
			t.Fatal(err)
		}
		testkit.Soon(t, "registered again", func() bool { _, _, n := m.get(); return n > before && m.alive(3)() })
	}
	// A second registration while the first is in use, from outside: when its
	// stream ends, the server drops whichever is current.
	_, _, before := m.get()
	if err := deviceplugin.Register(t.Context(), filepath.Join(d, "kubelet.sock"), &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: "nvidia.com_gpu.sock", ResourceName: gpu,
	}, patience); err != nil {
		t.Fatal(err)
	}
	testkit.Soon(t, "both streams", func() bool { _, _, n := m.get(); return n > before && m.alive(3)() })
	client, _, before := m.get()
	if err := client.(kubeletserver.Client).Disconnect(logger); err != nil {
		t.Fatal(err)
	}
	testkit.Soon(t, "registered again", func() bool { _, _, n := m.get(); return n > before && m.alive(3)() })
	time.Sleep(200 * time.Millisecond)
	if !m.alive(3)() {
		t.Error("the last registration did not last")
	}
}
