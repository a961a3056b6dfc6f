// Network-policies enforces NetworkPolicies on one node of the embedded cluster.
//
// The verdicts are those of kube-network-policies, of Kubernetes' SIG Network. Three things are ours:
//   - its nftables rules need a kernel with NFT_QUEUE; the xtables target NFQUEUE is in more kernels;
//   - its rules know a pod once the API server has its address, so that a pod's first connections would pass;
//     here every new connection of a pod is queued, and held until it is known whose the address is;
//   - whose the addresses of this node are is read from what the CNI plugin wrote before the pod had a process.
//
// It fails closed: without it no pod of the node makes a new connection.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
)

type options struct {
	kubeconfig, node, gate, leases string
	pods, cluster                  netip.Prefix
}

func main() {
	var options options
	check := flag.Bool("check", false, "set the rules, open the queue, and end: whether the kernel can do it")
	flag.StringVar(&options.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&options.node, "node", "", "name of this node")
	flag.StringVar(&options.gate, "gate", "", "file that is there once the API server serves")
	flag.TextVar(&options.pods, "pods", netip.Prefix{}, "addresses of this node's pods, a.b.c.d/n")
	flag.TextVar(&options.cluster, "cluster", netip.Prefix{}, "addresses of the pods of all nodes")
	flag.StringVar(&options.leases, "leases", "/var/lib/cni/results", "folder in which the CNI library keeps results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, options, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run sets the rules first: from then on nothing passes that has no verdict.
func run(ctx context.Context, options options, check bool) error {
	if err := setRules(options.pods); err != nil {
		return fmt.Errorf("rules of nftables with the xtables target NFQUEUE: %w", err)
	}
	if check {
		return openQueue(ctx, nil)
	}
	judge, err := newJudge(ctx, options)
	if err != nil {
		return err
	}
	if err := openQueue(ctx, judge.allows); err != nil {
		return fmt.Errorf("queue of netfilter (nfnetlink_queue): %w", err)
	}
	<-ctx.Done()
	return nil
}

// newJudge returns once it knows all pods, namespaces and policies.
func newJudge(ctx context.Context, options options) (*judge, error) {
	for options.gate != "" {
		if _, err := os.Stat(options.gate); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	namespaces, pods := factory.Core().V1().Namespaces(), factory.Core().V1().Pods()
	if err := pods.Informer().SetTransform(withoutManagedFields); err != nil {
		return nil, err
	}
	remote, err := newReported(pods.Informer())
	if err != nil {
		return nil, err
	}
	local := leases{options.leases, options.pods}
	known := podinfo.NewInformerProvider(pods, namespaces, nil, []podinfo.IPResolver{local, remote})
	policies := networkpolicy.NewStandardNetworkPolicy(
		options.node, namespaces, pods, factory.Networking().V1().NetworkPolicies())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	klog.InfoS("enforcing network policies", "node", options.node, "pods", options.pods)
	engine := networkpolicy.NewPolicyEngine(known, []api.PolicyEvaluator{policies})
	return &judge{engine, known, options.cluster, options.pods.Addr().Next(), held{of: map[string]int{}}}, nil
}

func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
