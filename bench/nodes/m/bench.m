bench	; the jobs of bench-nodes in M. Each label runs in a process of its own, with the number of
	; operations and, where it matters, the number of nodes as arguments, and writes the microseconds that
	; it took, the number of operations, and what it found, by which Go knows that both sides did the same.
	; Loops are written as the fastest M: no counter, no block, one line.
	;
	; integers and strings: 5,000,000 siblings with values of ten digits.
	; deep: nodes of five levels.
	;
loadInts	new count,i,start do arguments
	set start=$zhorolog for i=1:1:count set ^ints("lvd",i)=1000000000+i
	do report(count,$order(^ints("lvd",""),-1)) quit
loadStrings	new count,i,start do arguments
	set start=$zhorolog for i=1:1:count set ^strings("lvd","rec"_$extract(100000000+i,2,9))=1000000000+i
	do report(count,$order(^strings("lvd",""),-1)) quit
loadDeep	new count,i,start do arguments
	set start=$zhorolog for i=1:1:count set ^deep("one","two","three","four",i)=1000000000+i
	do report(count,$order(^deep("one","two","three","four",""),-1)) quit
	;
	; A walk reads its nodes once before the time starts.
walkInts	new count,i,last,start do arguments
	set i="" for  set i=$order(^ints("lvd",i)) quit:i=""
	set i="",start=$zhorolog for  set i=$order(^ints("lvd",i)) quit:i=""
	do report(count,$order(^ints("lvd",""),-1)) quit
walkIntValues	new count,i,start,value do arguments
	set i="" for  set i=$order(^ints("lvd",i)) quit:i=""  set value=^ints("lvd",i)
	set i="",start=$zhorolog for  set i=$order(^ints("lvd",i)) quit:i=""  set value=^(i)
	do report(count,value) quit
walkStrings	new count,i,start do arguments
	set i="" for  set i=$order(^strings("lvd",i)) quit:i=""
	set i="",start=$zhorolog for  set i=$order(^strings("lvd",i)) quit:i=""
	do report(count,$order(^strings("lvd",""),-1)) quit
walkStringValues	new count,i,start,value do arguments
	set i="" for  set i=$order(^strings("lvd",i)) quit:i=""  set value=^strings("lvd",i)
	set i="",start=$zhorolog for  set i=$order(^strings("lvd",i)) quit:i=""  set value=^(i)
	do report(count,value) quit
	;
	; get, set and increment rotate over the first nodes, several times; the first time is a warm-up.
get	new count,i,nodes,start,turn,value do arguments
	for i=1:1:nodes set value=^deep("one","two","three","four",i)
	set start=$zhorolog for turn=1:1:count/nodes for i=1:1:nodes set value=^deep("one","two","three","four",i)
	do report(count,value) quit
set	new count,i,nodes,start,turn do arguments
	for i=1:1:nodes set ^deep("one","two","three","four",i)=1000000000+i
	set start=$zhorolog for turn=1:1:count/nodes for i=1:1:nodes set ^deep("one","two","three","four",i)=1000000000+turn
	do report(count,^deep("one","two","three","four",nodes)) quit
incr	new count,i,nodes,start,turn,value do arguments
	for i=1:1:nodes set ^deep("one","two","three","four",i)=1000000000+i
	set start=$zhorolog for turn=1:1:count/nodes for i=1:1:nodes set value=$increment(^deep("one","two","three","four",i))
	do report(count,value) quit
	;
	; The same in transactions of some hundred thousand operations, which do not wait for the disk.
setTransactions	new batch,count,first,high,i,last,low,nodes,part,start,turn do arguments
	for i=1:1:nodes set ^deep("one","two","three","four",i)=1000000000+i
	set start=$zhorolog for part=1:1:count/batch tstart ():transactionid="BATCH"  do  tcommit
	. for turn=first(part):1:last(part) for i=low(part):1:high(part) set ^deep("one","two","three","four",i)=1000000000+turn
	do report(count,^deep("one","two","three","four",nodes)) quit
incrTransactions	new batch,count,first,high,i,last,low,nodes,part,start,turn,value do arguments
	for i=1:1:nodes set ^deep("one","two","three","four",i)=1000000000+i
	set start=$zhorolog for part=1:1:count/batch tstart ():transactionid="BATCH"  do  tcommit
	. for turn=first(part):1:last(part) for i=low(part):1:high(part) set value=$increment(^deep("one","two","three","four",i))
	do report(count,value) quit
	;
	; arguments: COUNT [NODES [BATCH]]. A transaction has BATCH operations: on nodes low to high, in turns first to last.
arguments	set count=+$zcmdline,nodes=+$piece($zcmdline," ",2),batch=+$piece($zcmdline," ",3)
	quit:'batch
	new part,per set per=$select(nodes<batch:nodes,1:batch)
	for part=1:1:count/batch do
	. set low(part)=part-1*batch#nodes+1,high(part)=low(part)+per-1
	. set first(part)=part-1*batch\nodes+1,last(part)=batch/per+first(part)-1
	quit
	;
report(count,found)	new stop set stop=$zhorolog
	write $$microseconds(start,stop)," ",count," ",found,!
	quit
microseconds(from,to)	; from two values of $ZHOROLOG: days, seconds, microseconds, zone
	quit to-from*86400+$piece(to,",",2)-$piece(from,",",2)*1000000+$piece(to,",",3)-$piece(from,",",3)
