// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// registry is the Registration service that inner plugins register with instead of
// kubelet's.
type registry struct {
	pluginapi.UnimplementedRegistrationServer

	i *Interposer
}

// Register connects to the plugin before it responds, as kubelet does.
func (s *registry) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	err := s.i.register(ctx, req)
	s.i.metrics.registered(sideInner, err)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Refused a device plugin", "resource", req.GetResourceName(), "endpoint", req.GetEndpoint())
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}

func (i *Interposer) register(ctx context.Context, req *pluginapi.RegisterRequest) error {
	if !slices.Contains(pluginapi.SupportedVersions[:], req.GetVersion()) {
		return status.Errorf(codes.InvalidArgument, "API version %q: supported are %v", req.GetVersion(), pluginapi.SupportedVersions)
	}
	if err := deviceplugin.CheckResourceName(req.GetResourceName()); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	paths, err := i.cfg.endpointPaths(req.GetEndpoint())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	in, err := connect(ctx, req, paths)
	if err != nil {
		return status.Errorf(codes.Unavailable, "connecting back to %s: %v", req.GetResourceName(), err)
	}
	select {
	case i.adopt <- in:
		return nil
	case <-i.ended:
	case <-ctx.Done():
	}
	in.close()
	return status.Error(codes.Unavailable, "the node agent is stopping")
}

// endpointPaths returns the possible paths of a registration's socket. Kubelet joins its own directory
// and the endpoint, and so do plugins that know only that directory. Plugins whose mount replaces the
// whole directory serve beside the agent's registry. A path outside of both directories must be absolute
// and in its shortest form.
func (c Config) endpointPaths(endpoint string) ([]string, error) {
	var paths []string
	switch {
	case endpoint == "" || strings.ContainsRune(endpoint, 0):
		return nil, fmt.Errorf("endpoint %q: not a path", endpoint)
	case filepath.Clean(endpoint) != endpoint:
		return nil, fmt.Errorf("endpoint %q: the path is not in its shortest form", endpoint)
	case filepath.IsAbs(endpoint):
		paths = []string{endpoint}
	case !filepath.IsLocal(endpoint) || endpoint == ".":
		return nil, fmt.Errorf("endpoint %q: it is outside of the plugin directory", endpoint)
	default:
		paths = []string{filepath.Join(c.PluginDir, endpoint), filepath.Join(c.RegistryDir, endpoint)}
	}
	for _, p := range paths {
		dir, name := filepath.Split(p)
		dir = filepath.Clean(dir)
		if dir == c.PluginDir && strings.HasPrefix(name, socketPrefix) ||
			name == kubeletSocketName && (dir == c.PluginDir || dir == c.RegistryDir) {
			return nil, fmt.Errorf("endpoint %q: this socket is not a plugin's", endpoint)
		}
	}
	return paths, nil
}
