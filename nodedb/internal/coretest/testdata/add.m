add	; add INPUT OUTPUT: add as M does. INPUT has a value and an increment in two lines, as ZWRITE writes them. OUTPUT gets
	; the sum, or overflow. The sum is that of +, because $INCREMENT of GT.M V7.0 gives "" where the value is 18 or
	; more digits smaller than the increment.
	new by,count,input,output,sum,value
	set input=$piece($zcmdline," ",1),output=$piece($zcmdline," ",2)
	open input:(readonly:recordsize=65535),output:(newversion:nowrap)
	for count=1:1 use input read value quit:$zeof  read by use output do sum($zwrite(value,1),$zwrite(by,1)) write sum,!
	close input,output quit
sum(value,by)	new $etrap
	set $etrap="set sum=$select($zstatus[""NUMOFLOW"":""overflow"",1:$zstatus),$ecode="""" quit"
	set sum=value+by quit
