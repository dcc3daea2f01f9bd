// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// Limits for connecting back to a plugin that registers. Kubelet allows 10 s too, because some plugins
// register just before they serve.
const (
	connectTimeout = 10 * time.Second
	connectRetry   = 50 * time.Millisecond
)

// inner is one registration of an inner plugin, until its stream ends or the plugin registers again; it
// never reconnects. A plugin that receives a second ListAndWatch while the first stream is still open may
// report the next change of health on the dead stream only (NVIDIA's does).
type inner struct {
	resource string
	endpoint string
	options  *pluginapi.DevicePluginOptions
	client   pluginapi.DevicePluginClient
	conn     *grpc.ClientConn
}

// connect connects to the plugin at the first of the paths that responds.
func connect(ctx context.Context, req *pluginapi.RegisterRequest, paths []string) (*inner, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for {
		var errs []error
		for _, path := range paths {
			in, err := connectTo(ctx, req, path)
			if err == nil {
				return in, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		select {
		case <-time.After(connectRetry):
		case <-ctx.Done():
			return nil, errors.Join(errs...)
		}
	}
}

func connectTo(ctx context.Context, req *pluginapi.RegisterRequest, path string) (*inner, error) {
	conn, err := deviceplugin.Dial(path)
	if err != nil {
		return nil, err
	}
	in := &inner{resource: req.GetResourceName(), endpoint: path, conn: conn, client: pluginapi.NewDevicePluginClient(conn)}
	in.options, err = in.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if status.Code(err) == codes.Unimplemented {
		// Plugins without this call sent their options when they registered.
		in.options, err = req.GetOptions(), nil
	}
	if err != nil {
		in.close()
		return nil, fmt.Errorf("asking for its options: %w", err)
	}
	if in.options == nil {
		in.options = &pluginapi.DevicePluginOptions{}
	}
	return in, nil
}

func (in *inner) close() { _ = in.conn.Close() } // it can only have been closed before

// preferred returns the plugin's preferred devices.
func (in *inner) preferred(ctx context.Context, q Question) ([]string, error) {
	resp, err := in.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs:   q.Available,
			MustIncludeDeviceIDs: q.MustInclude,
			AllocationSize:       int32(q.Size),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("asking the plugin of %s: %w", q.Resource, err)
	}
	if len(resp.GetContainerResponses()) != 1 {
		return nil, fmt.Errorf("the plugin of %s gave %d answers to one question", q.Resource, len(resp.GetContainerResponses()))
	}
	ids := resp.GetContainerResponses()[0].GetDeviceIDs()
	if err := q.check(ids); err != nil {
		return nil, fmt.Errorf("the plugin of %s answered %w", q.Resource, err)
	}
	return ids, nil
}
