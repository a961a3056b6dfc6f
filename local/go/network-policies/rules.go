package main

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

const table = "network-policies"

// setRules queues what begins at a pod of this node or reaches for one, after the Services' addresses have
// become pods': what is forwarded, and what pods send to the node itself. What the node sends to its own
// pods, such as kubelet's probes, is not judged: NetworkPolicies leave it out. Pods have no use for IPv6.
func setRules(pods netip.Prefix) error {
	link, err := nftables.New()
	if err != nil {
		return err
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		own := &nftables.Table{Name: table, Family: family}
		link.AddTable(own)
		link.DelTable(own) // with the addition before it: whether it was there or not
		link.AddTable(own)
		forward := link.AddChain(&nftables.Chain{
			Name: "forward", Table: own, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		})
		if family == nftables.TableFamilyIPv6 {
			link.AddRule(&nftables.Rule{Table: own, Chain: forward, Exprs: verdict(expr.VerdictDrop)})
			continue
		}
		input := link.AddChain(&nftables.Chain{
			Name: "input", Table: own, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
		})
		for _, chain := range []*nftables.Chain{forward, input} {
			link.AddRule(&nftables.Rule{Table: own, Chain: chain, Exprs: established()})
			link.AddRule(&nftables.Rule{Table: own, Chain: chain, Exprs: queued(sourceOffset, pods)})
		}
		link.AddRule(&nftables.Rule{Table: own, Chain: forward, Exprs: queued(destinationOffset, pods)})
	}
	return link.Flush()
}

const sourceOffset, destinationOffset = 12, 16

// established: `ct state established,related accept`
func established() []expr.Any {
	bits := expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	return append([]expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}, verdict(expr.VerdictAccept)...)
}

// queued: `ip saddr|daddr PODS` to the queue; with nobody behind it, the packet is dropped.
func queued(offset uint32, pods netip.Prefix) []expr.Any {
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-pods.Bits()))
	first := pods.Masked().Addr().As4()
	target := make([]byte, 8) // struct xt_NFQ_info_v3: queue, number of queues, flags, in the host's order
	binary.NativeEndian.PutUint16(target[0:], queueNumber)
	binary.NativeEndian.PutUint16(target[2:], 1)
	info := xt.Unknown(target)
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: first[:]},
		&expr.Counter{},
		&expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info},
	}
}

func verdict(kind expr.VerdictKind) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind}}
}
