// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEndpointPaths(t *testing.T) {
	cfg := Config{PluginDir: "/plugins", RegistryDir: "/plugins/nvtopo"}
	for name, tc := range map[string]struct {
		endpoint string
		want     []string
		wantErr  string
	}{
		"a name is looked for where kubelet would, then beside the registry": {
			endpoint: "nvidia-gpu.sock", want: []string{"/plugins/nvidia-gpu.sock", "/plugins/nvtopo/nvidia-gpu.sock"},
		},
		"a directory below":                {endpoint: "a/b.sock", want: []string{"/plugins/a/b.sock", "/plugins/nvtopo/a/b.sock"}},
		"an absolute path":                 {endpoint: "/run/x.sock", want: []string{"/run/x.sock"}},
		"nothing":                          {endpoint: "", wantErr: "not a path"},
		"a zero byte":                      {endpoint: "a\x00b", wantErr: "not a path"},
		"out of the directory":             {endpoint: "../x.sock", wantErr: "outside"},
		"the directory itself":             {endpoint: ".", wantErr: "outside"},
		"out and in again":                 {endpoint: "a/../../plugins/x.sock", wantErr: "shortest form"},
		"an absolute path with a way back": {endpoint: "/run/../etc/x.sock", wantErr: "shortest form"},
		"a trailing slash":                 {endpoint: "x.sock/", wantErr: "shortest form"},
		"kubelet's socket":                 {endpoint: "kubelet.sock", wantErr: "not a plugin's"},
		"our registry":                     {endpoint: "nvtopo/kubelet.sock", wantErr: "not a plugin's"},
		"our registry by its path":         {endpoint: "/plugins/nvtopo/kubelet.sock", wantErr: "not a plugin's"},
		"a socket of ours, in a circle":    {endpoint: "nvtopo-nvidia.com_gpu.sock", wantErr: "not a plugin's"},
		"the same by its path":             {endpoint: "/plugins/nvtopo-nvidia.com_gpu.sock", wantErr: "not a plugin's"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cfg.endpointPaths(tc.endpoint)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("error %v, want %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzEndpointPaths(f *testing.F) {
	for _, s := range []string{"x.sock", "../x", "a/../b", "/a/b", "//", ".", "..", "a\x00", "kubelet.sock", "nvtopo/kubelet.sock", "nvtopo-x.sock"} {
		f.Add(s)
	}
	cfg := Config{PluginDir: "/plugins", RegistryDir: "/plugins/nvtopo"}
	f.Fuzz(func(t *testing.T, endpoint string) {
		paths, err := cfg.endpointPaths(endpoint)
		if err != nil {
			return
		}
		for _, p := range paths {
			switch {
			case !filepath.IsAbs(p) || filepath.Clean(p) != p:
				t.Errorf("%q: %q is not a plain absolute path", endpoint, p)
			case strings.ContainsRune(p, 0):
				t.Errorf("%q: %q has a zero byte", endpoint, p)
			case !filepath.IsAbs(endpoint) && !strings.HasPrefix(p, "/plugins/"):
				t.Errorf("%q: %q is out of the plugin directory", endpoint, p)
			case p == "/plugins/kubelet.sock" || p == "/plugins/nvtopo/kubelet.sock" || strings.HasPrefix(p, "/plugins/nvtopo-") && !strings.Contains(p[9:], "/"):
				t.Errorf("%q: %q is not a plugin's", endpoint, p)
			}
		}
	})
}

func TestSocketPath(t *testing.T) {
	long := "example.com/" + strings.Repeat("x", 63)
	seen := map[string]string{}
	for _, r := range []string{"nvidia.com/gpu", "nvidia.com/gpu.shared", long, long[:len(long)-1] + "y"} {
		p := socketPath("/var/lib/kubelet/device-plugins", r)
		if len(p) > 107 || filepath.Dir(p) != "/var/lib/kubelet/device-plugins" || !strings.HasPrefix(filepath.Base(p), socketPrefix) {
			t.Errorf("%q is served at %q", r, p)
		}
		if other, twice := seen[p]; twice {
			t.Errorf("%q and %q share %q", r, other, p)
		}
		seen[p] = r
	}
}

func TestConfigErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg     Config
		wantErr string
	}{
		"a relative directory":                     {cfg: Config{PluginDir: "x"}, wantErr: "not absolute"},
		"kubelet's directory as the registry":      {cfg: Config{PluginDir: "/x", RegistryDir: "/x/"}, wantErr: "kubelet's own"},
		"a negative hold":                          {cfg: Config{PluginDir: "/x", Hold: -1}, wantErr: "negative"},
		"an inner timeout that leaves no time":     {cfg: Config{PluginDir: "/x", InnerTimeout: SteeringBudget}, wantErr: "leaves no time"},
		"a registry whose socket path is too long": {cfg: Config{PluginDir: "/" + strings.Repeat("x", 120)}, wantErr: "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tc.cfg, nil, nil); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}
