#!/usr/bin/env python3
"""An independent f64 evaluation of novella-dense (numpy), beside its recording: shows which RoPE frequencies the recording used.

    tools/golden_f64.py [../shared/models]

Prints mean, mean absolute and worst difference of the negative log-likelihood of 1023 tokens, with f32 frequencies and with
frequencies rounded to bf16.  docs/evidence/golden.md reads the result.  Needs python3-numpy; a few minutes.
"""
import sys
MODELS = sys.argv[1] if len(sys.argv) > 1 else "../shared/models"
import struct,json,sys,numpy as np
path=MODELS+'/novella-dense-bf16.gguf'
b=open(path,'rb').read(); o=8
def r(f):
    global o
    v=struct.unpack_from('<'+f,b,o)[0]; o+=struct.calcsize('<'+f); return v
def s():
    global o
    n=r('Q'); v=b[o:o+n]; o+=n; return v.decode('utf8','replace')
nt=r('q');nk=r('q')
T={0:'B',1:'b',2:'H',3:'h',4:'I',5:'i',6:'f',7:'?',10:'Q',11:'q',12:'d'}
def val(t):
    if t==8:return s()
    if t==9:
        e=r('i');c=r('Q');return [val(e) for _ in range(c)]
    return r(T[t])
kv={}
for _ in range(nk):
    k=s();t=r('i');kv[k]=val(t)
ts={}
for _ in range(nt):
    n=s();nd=r('I');ne=[r('q') for _ in range(nd)];ty=r('i');off=r('Q');ts[n]=(ne,ty,off)
base=(o+31)//32*32
def W(n,dt=np.float64):
    ne,ty,off=ts[n]; cnt=int(np.prod(ne))
    if ty==0: a=np.frombuffer(b,np.float32,cnt,base+off)
    else: a=(np.frombuffer(b,np.uint16,cnt,base+off).astype(np.uint32)<<16).view(np.float32)
    return a.reshape(ne[::-1]).astype(dt)
g=json.load(open(MODELS+'/novella-dense-golden.json'))
ids=np.array(g['valid_first_1024']['ids']); nll=np.array(g['valid_first_1024']['nll'])
def bf(x):
    u=np.ascontiguousarray(x.astype(np.float32)).view(np.uint32); u=(u+0x7fff+((u>>16)&1))&np.uint32(0xffff0000); return u.view(np.float32).astype(x.dtype)
OPT={}
def run(dt,invmode):
    V=(lambda n,d: bf(W(n,d))) if OPT.get('norm') else W
    x=W('token_embd.weight',dt)[ids]; n=len(ids)
    i=np.arange(64)
    if invmode=='f64': inv=1e6**(-(2.0*i)/128)
    elif invmode=='bfinv': inv=bf((1e6**(-(2.0*i)/128)))
    elif invmode=='powf': inv=(np.float32(1)/np.power(np.float32(1e6),(2*i).astype(np.float32)/np.float32(128))).astype(np.float32)
    pos=np.arange(n)
    if invmode=='f64': ang=pos[:,None]*inv[None]
    else: ang=(pos[:,None].astype(np.float32)*inv[None]).astype(np.float32)
    ang=ang.astype(np.float64)
    c=np.cos(ang).astype(dt);si=np.sin(ang).astype(dt)
    if OPT.get('cs'): c=bf(c);si=bf(si)
    def rms(x,w): return x/np.sqrt((x*x).mean(-1,keepdims=True)+1e-6)*w
    def rope(q):
        a,bb=q[...,:64],q[...,64:]
        return np.concatenate([a*c[:,None]-bb*si[:,None],a*si[:,None]+bb*c[:,None]],-1)
    mask=np.triu(np.full((n,n),-1e30),1).astype(dt)
    for l in range(8):
        p=f'blk.{l}.'
        a=rms(x,V(p+'attn_norm.weight',dt))
        q=(a@W(p+'attn_q.weight',dt).T).reshape(n,8,128);k=(a@W(p+'attn_k.weight',dt).T).reshape(n,2,128);v=(a@W(p+'attn_v.weight',dt).T).reshape(n,2,128)
        q=rope(rms(q,V(p+'attn_q_norm.weight',dt)));k=rope(rms(k,V(p+'attn_k_norm.weight',dt)))
        o_=np.zeros((n,8,128),dt)
        for h in range(8):
            sc=q[:,h]@k[:,h//4].T/np.sqrt(128).astype(dt)+mask
            sc-=sc.max(-1,keepdims=True);e=np.exp(sc);e/=e.sum(-1,keepdims=True)
            o_[:,h]=e@v[:,h//4]
        x=x+o_.reshape(n,-1)@W(p+'attn_output.weight',dt).T
        f=rms(x,V(p+'ffn_norm.weight',dt))
        gt=f@W(p+'ffn_gate.weight',dt).T
        x=x+(gt/(1+np.exp(-gt))*(f@W(p+'ffn_up.weight',dt).T))@W(p+'ffn_down.weight',dt).T
    lg=(rms(x,V('output_norm.weight',dt))@W('token_embd.weight',dt).T).astype(np.float64)
    m=lg.max(-1,keepdims=True); lse=(m[:,0]+np.log(np.exp(lg-m).sum(-1)))
    return lse[:-1]-lg[np.arange(n-1),ids[1:]]

def cmp(t,x,y): d=x-y; print(t,'mean %.2e meanabs %.2e worst %.3g'%(d.mean(),abs(d).mean(),abs(d).max()))
cmp('f32 frequencies', run(np.float64, 'powf'), nll)
cmp('bf16 frequencies', run(np.float64, 'bfinv'), nll)
