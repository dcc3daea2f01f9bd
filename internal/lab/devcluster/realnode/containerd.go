// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// containerdStart and kubeletStart limit the start of the two: a second or so each on an idle machine.
	containerdStart = 3 * time.Minute
	kubeletStart    = 3 * time.Minute
	pollInterval    = 50 * time.Millisecond
	criNamespace    = "k8s.io"
)

// containerdConfig keeps every path in the node's own folder and needs no
// network: images are imported, and pods use the machine's network or one that
// ends at the node. overlay in a tmpfs is refused by older kernels, hence the native
// snapshotter, which copies the image's one file.
const containerdConfig = `version = 3
root = "{{.Dir}}/containerd/root"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{{.Socket}}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Image}}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
{{- range $name, $spec := .Handlers}}
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes."{{$name}}"]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{{$spec}}"
{{- end}}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.Plugins}}"]
    conf_dir = "{{.Dir}}/cni/net.d"
    use_internal_loopback = true
[plugins."io.containerd.nri.v1.nri"]
  disable = {{not .NRI}}
  socket_path = "{{.NRISocket}}"
  plugin_path = "{{.Dir}}/nri/plugins"
  plugin_config_path = "{{.Dir}}/nri/conf.d"
`

// noNetwork lets the runtime call its network ready. Nothing uses it.
const noNetwork = `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}
`

// containerdSocket is containerd's own default; /run is the node's.
const containerdSocket = "/run/containerd/containerd.sock"

// NRISocket returns the socket with which plugins of the node resource interface register.
func (*Node) NRISocket() string { return "/run/nri/nri.sock" }

// startContainerd starts the runtime and gives it the image.
func (n *Node) startContainerd(ctx context.Context) error {
	var config bytes.Buffer
	t := template.Must(template.New("containerd").Parse(containerdConfig))
	err := t.Execute(&config, map[string]any{
		"Dir": n.inside, "Socket": containerdSocket, "Image": Image, "NRI": n.cfg.NRI, "NRISocket": n.NRISocket(),
		"Handlers": n.cfg.Handlers, "Plugins": filepath.Join(n.cfg.Bin, cniFolder),
	})
	if err != nil {
		return fmt.Errorf("write containerd's configuration: %w", err)
	}
	path := filepath.Join(n.dir, "containerd.toml")
	if err := os.WriteFile(path, config.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write containerd's configuration: %w", err)
	}
	cni := n.Path(n.Private("cni/net.d"))
	if err := os.MkdirAll(cni, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	network := noNetwork
	if n.cfg.Network {
		network = podNetwork(n.Private("cni/addresses"))
	}
	if err := os.WriteFile(filepath.Join(cni, "10-pods.conflist"), []byte(network), 0o600); err != nil {
		return fmt.Errorf("write the network's configuration: %w", err)
	}
	n.containerd, err = n.Run(Program{
		Name: "containerd", Path: filepath.Join(n.cfg.Bin, containerdBinary), Args: []string{"--config", path},
	})
	if err != nil {
		return err
	}
	if err := n.WaitSocket(ctx, containerdSocket, n.containerd, containerdStart); err != nil {
		return err
	}
	return n.importImages(ctx)
}

// WaitSocket waits until a program of the node serves a unix socket.
func (n *Node) WaitSocket(ctx context.Context, socket string, p *Process, limit time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		if how := p.Ended(); how != "" {
			return false, n.explain(p, how)
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", n.Path(socket))
		if err != nil {
			return false, nil //nolint:nilerr // not listening yet
		}
		return true, c.Close()
	})
	if err != nil {
		return fmt.Errorf("wait for %s at %s: %w", p.Name(), socket, err)
	}
	return nil
}

// explain returns an error with the end of a program's log.
func (n *Node) explain(p *Process, how string) error {
	const tail = 4096                           // bytes
	text, _ := os.ReadFile(n.logPath(p.Name())) // only to explain
	return fmt.Errorf("%s: %s\n%s", p.Name(), how, text[max(0, len(text)-tail):])
}
